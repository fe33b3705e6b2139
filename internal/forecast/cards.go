package forecast

import (
	"fmt"
	"slices"
	"strings"

	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/decoder"
)

// placeOnCards decides what of the model is on the GPUs of the hosts, as the server does. All
// ranks of a group must compute the same bits, so all have the same part of the model
// there: what the smallest GPU holds.
func (o *Forecaster) placeOnCards() error {
	gpus, on := 0, decoder.AllOnGPU
	for i := range o.hosts {
		h := &o.hosts[i]
		if h.GPU == 0 {
			continue
		}
		gpus++
		card, err := o.plans().OnCard(h.GPU, false)
		if err != nil {
			return usage.Wrap(err)
		}
		h.card, on = &card, min(on, card.On)
		h.own = ownMemory{h.Offer, h.Limit, h.Threads}
	}
	if gpus == 0 {
		return nil
	}
	if gpus < len(o.hosts) {
		return usage.Errorf("--host: %d of %d hosts have a gpu=; in a group all need the same GPU, or none is used", gpus, len(o.hosts))
	}
	o.hosts, o.on = placed(o.hosts, on), on
	return nil
}

// placed is hosts with this part of the model on their GPUs.
func placed(hosts []Host, on decoder.OnGPU) []Host {
	hosts = slices.Clone(hosts)
	for i := range hosts {
		h := &hosts[i]
		card := *h.card
		card.On = on
		h.card, h.Offer, h.Limit, h.Threads = &card, h.own.offer, h.own.limit, h.own.threads
		if on == decoder.AllOnGPU {
			h.Offer, h.Limit, h.Threads = h.GPU, "the GPU's memory", 0
		}
	}
	return hosts
}

// cards are what of the model is on the GPU of each host, nil without GPUs.
func cards(hosts []Host) (all []groupplan.Card) {
	for _, h := range hosts {
		if h.card != nil {
			all = append(all, *h.card)
		}
	}
	return all
}

// onCards reports whether GPUs compute.
func onCards(all []groupplan.Card) bool { return len(all) > 0 && all[0].On != decoder.NothingOnGPU }

// writeCards says what of the model is on the GPU of each rank; ranks with equal ones share a
// line.
func writeCards(b *strings.Builder, all []groupplan.Card) {
	for i := 0; i < len(all); {
		n := i + 1
		for n < len(all) && all[n] == all[i] {
			n++
		}
		name := fmt.Sprintf("rank %d", i)
		if n > i+1 {
			name = fmt.Sprintf("each of ranks %d to %d", i, n-1)
		}
		c := all[i]
		why := c.Why()
		if c.On == decoder.NothingOnGPU && c.Dense <= c.Memory {
			why = "not used, because that of another rank has no room, and all ranks must compute the same bits"
		}
		fmt.Fprintf(b, "GPU of %s, %s: %s\n", name, units.Bytes(c.Memory), why)
		i = n
	}
	if len(all) > 1 && onCards(all) {
		fmt.Fprintf(b, "all ranks need the same GPU and driver, and --backend %s\n", backends[all[0].On])
	}
}
