package testenv

import (
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Front stands before the nodes of an embedded cluster and sees each request
// and each answer as a frame. [Front.Arm] makes something go wrong on the way,
// [Front.Watch] records what was asked. Its methods may be called concurrently.
//
// A frame goes through the faults that match it, then to the owner of its key
// if there is one, then to kfake. As on a real broker a connection's requests
// are handled one after the other: an answer that is held or late holds up
// those behind it on its connection, and no other connection.
//
// The front also hides compaction of ledger topics, see [EmbeddedOptions].
type Front struct {
	listen func(network, address string) (net.Listener, error)
	owners map[int16]owner // fixed when the front is made
	share  *shareBroker    // nil: share groups are kfake's

	mu        sync.Mutex
	fake      *kfake.Cluster
	nodes     int32
	armed     []*Armed
	recorders []*Recorder
	conns     map[*frontConn]struct{}
	closed    bool
	running   sync.WaitGroup // reader and server of each connection
}

// An owner handles the requests of one key in place of kfake. It may change
// the request, ask kfake by next, and change or make the answer. An error
// closes the connection.
type owner func(x *exchange, next func() error) error

// errHungUp ends a connection; whoever waits for it sees the connection close.
var errHungUp = errors.New("connection ended")

func newFront(listen func(network, address string) (net.Listener, error), shares *ShareOptions) *Front {
	f := &Front{listen: listen, conns: make(map[*frontConn]struct{})}
	hide := &hiddenPolicies{of: make(map[string]string)}
	f.owners = map[int16]owner{
		int16(kmsg.CreateTopics):            hide.createTopics,
		int16(kmsg.DescribeConfigs):         hide.describeConfigs,
		int16(kmsg.AlterConfigs):            hide.alterConfigs,
		int16(kmsg.IncrementalAlterConfigs): hide.incrementalAlterConfigs,
	}
	if shares != nil {
		f.share = newShareBroker(f, *shares)
		f.share.own(f.owners)
	}
	return f
}

// must ends a test that wants a front where there is none.
func (f *Front) must() {
	if f == nil {
		panic("testenv: no front before this cluster: it is real, has TLS, or its options replace the listener")
	}
}

// frontListener hands kfake connections that end in the front.
type frontListener struct {
	net.Listener
	front *Front
	node  int32
}

// accept is what kfake listens with. kfake numbers its nodes in the order in
// which it makes their listeners, and so does the front.
func (f *Front) accept(network, address string) (net.Listener, error) {
	ln, err := f.listen(network, address)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &frontListener{Listener: ln, front: f, node: f.nodes}
	f.nodes++
	return l, nil
}

func (l *frontListener) Accept() (net.Conn, error) {
	client, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &frontConn{
		front:  l.front,
		node:   l.node,
		client: client,
		broker: newBrokerSide(client),
		frames: make(chan []byte),
		gone:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	f := l.front
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = client.Close()
		return nil, net.ErrClosed
	}
	f.conns[c] = struct{}{}
	f.running.Go(c.read)
	f.running.Go(c.serve)
	return c.broker, nil
}

// close ends all connections and waits until nothing of them runs.
func (f *Front) close() {
	if f == nil {
		return
	}
	if f.share != nil {
		f.share.close()
	}
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		_ = c.broker.Close()
		_ = c.client.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// started tells the front which cluster it stands before, and returns whether
// it does.
func (f *Front) started(fake *kfake.Cluster) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fake = fake
	return f.nodes > 0
}

// topicID returns the id of a topic, zero if there is none.
func (f *Front) topicID(topic string) [16]byte {
	f.mu.Lock()
	fake := f.fake
	f.mu.Unlock()
	if info := fake.TopicInfo(topic); info != nil {
		return info.TopicID
	}
	return [16]byte{}
}
