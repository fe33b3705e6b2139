package keys_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ringmaster/api/keys"
)

// Example makes a key with a limit of one request per minute, writes its line to a file
// and counts two requests.
func Example() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	secret := keys.New()
	k := keys.Key{Name: "alice", Hash: keys.Hash(secret), Requests: keys.Limit{N: 1, Per: time.Minute}}
	file := filepath.Join(dir, "keys")
	if err := os.WriteFile(file, []byte(k.Line()), 0o600); err != nil {
		panic(err)
	}
	ring, err := keys.Open(keys.Options{File: file})
	if err != nil {
		panic(err)
	}
	fmt.Println(ring.Find("rm-guess") == nil)
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	holder := ring.Find(secret)
	fmt.Println(holder.Name, holder.Request(now), holder.Request(now))
	// Output:
	// true
	// alice 0s 1m0s
}
