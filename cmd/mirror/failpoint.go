//go:build failpoint

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// failpointVar names the point at which the process kills itself, as
// "<role> <request> <written|read> <n>": when the nth request of that name, or
// of that key where it has none, was written by, or the answer to it read by,
// clients of that role together.
const failpointVar = "ONCEOVER_FAILPOINT"

// failpoint counts requests of one kind.
type failpoint struct {
	role  string
	key   int16
	read  bool
	after atomic.Int64 // how many are left until the one that kills
}

// failpoints adds the point that the environment asks for. It panics on one
// that makes no sense: a build with failpoints is for tests alone.
func failpoints(hooks clientHooks) clientHooks {
	text := os.Getenv(failpointVar)
	if text == "" {
		return hooks
	}
	p, err := parseFailpoint(text)
	if err != nil {
		panic(err)
	}
	return func(flow, role string) []kgo.Hook {
		if role != p.role {
			return hooks(flow, role)
		}
		return append(hooks(flow, role), p)
	}
}

func parseFailpoint(text string) (*failpoint, error) {
	words := strings.Fields(text)
	if len(words) != 4 || !slices.Contains([]string{"written", "read"}, words[2]) {
		return nil, fmt.Errorf("%s %q: want <role> <request> <written|read> <n>", failpointVar, text)
	}
	n, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%s %q: %q is no count", failpointVar, text, words[3])
	}
	p := &failpoint{role: words[0], key: -1, read: words[2] == "read"}
	p.after.Store(n)
	if key, err := strconv.ParseInt(words[1], 10, 16); err == nil {
		p.key = int16(key)
	}
	for key := range kmsg.MaxKey + 1 {
		if kmsg.NameForKey(int16(key)) == words[1] {
			p.key = int16(key)
		}
	}
	if p.key < 0 {
		return nil, fmt.Errorf("%s %q: there is no request %q", failpointVar, text, words[1])
	}
	return p, nil
}

var (
	_ kgo.HookBrokerWrite = (*failpoint)(nil)
	_ kgo.HookBrokerRead  = (*failpoint)(nil)
)

// OnBrokerWrite is called when a request is on its way: what the broker makes
// of it, nobody will learn here.
func (p *failpoint) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	p.pass(key, false, err)
}

// OnBrokerRead is called before whoever waits for the answer has it.
func (p *failpoint) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	p.pass(key, true, err)
}

func (p *failpoint) pass(key int16, read bool, err error) {
	if err != nil || key != p.key || read != p.read || p.after.Add(-1) != 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // nothing more is to happen here until the signal arrives
}
