package pairing

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often strangers may guess. All addresses together have one attempt a second, so that a
// code of 30 bits is found once in decades even though each code is replaced after mostWrong
// wrong ones. One address (IPv6: a /64 network) has fewer, so that it cannot use up those of
// the others.
const (
	mostWrong     = 10 // wrong codes, then another takes the code's place
	attemptEvery  = time.Second
	attemptsAt    = 10 // once
	addressEvery  = 20 * time.Second
	addressAt     = 4    // once
	mostAddresses = 1024 // that are remembered
	logEvery      = 5 * time.Second
)

// limits count attempts.
type limits struct {
	now func() time.Time

	mu    sync.Mutex
	all   *rate.Limiter
	logs  *rate.Limiter
	from  map[string]*rate.Limiter
	code  int // number of the code that wrong and open are about
	wrong int // codes
	open  int // attempts in progress, each of which may be wrong
}

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, all: rate.NewLimiter(rate.Every(attemptEvery), attemptsAt), logs: rate.NewLimiter(rate.Every(logEvery), attemptsAt), from: map[string]*rate.Limiter{}}
}

// mayLog reports whether another line about a stranger may be logged.
func (l *limits) mayLog() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.logs.AllowN(l.now(), 1)
}

// begin begins an attempt at a code from an address; it returns why there can be none now.
func (l *limits) begin(from string, code int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	switch {
	case code < l.code: // an attempt that was late must not begin the count again
		return "the code has just changed: give the new one"
	case code > l.code:
		l.code, l.wrong, l.open = code, 0, 0
	}
	own := l.from[from]
	if own == nil {
		if len(l.from) >= mostAddresses {
			l.forget(now)
		}
		if len(l.from) >= mostAddresses {
			return "too many hosts have tried codes: try again in a minute"
		}
		own = rate.NewLimiter(rate.Every(addressEvery), addressAt)
		l.from[from] = own
	}
	switch {
	case l.wrong+l.open >= mostWrong:
		return "too many attempts at once: try again in a few seconds"
	case own.TokensAt(now) < 1:
		return fmt.Sprintf("too many attempts from this address: try again in %v", addressEvery)
	case !l.all.AllowN(now, 1):
		return fmt.Sprintf("too many attempts: try again in %v", attemptsAt*attemptEvery)
	}
	own.AllowN(now, 1)
	l.open++
	return ""
}

// forget drops the addresses that have all their attempts again.
func (l *limits) forget(now time.Time) {
	for from, own := range l.from {
		if own.TokensAt(now) >= addressAt {
			delete(l.from, from)
		}
	}
}

// end ends an attempt and reports whether the code must be replaced.
func (l *limits) end(code int, wrong bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.code != code {
		return false
	}
	l.open--
	if wrong {
		l.wrong++
	}
	return wrong && l.wrong == mostWrong
}
