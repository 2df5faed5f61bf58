package testenv

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frontConn is a client's connection, and kfake's end of it.
type frontConn struct {
	front  *Front
	node   int32
	client net.Conn
	broker *brokerSide
	frames chan []byte   // from read to serve
	gone   chan struct{} // closed by read: there are no more frames
	done   chan struct{} // closed by serve: nobody takes frames any more
}

// read takes requests off the wire, one ahead, to see when a client goes away
// while its request is handled.
func (c *frontConn) read() {
	defer close(c.gone)
	for {
		frame, err := readFrame(c.client)
		if err != nil {
			return
		}
		select {
		case c.frames <- frame:
		case <-c.done:
			return
		}
	}
}

// serve handles one request after the other.
func (c *frontConn) serve() {
	defer c.hangUp()
	for {
		select {
		case frame := <-c.frames:
			x, err := parseExchange(c, frame)
			if err != nil || c.handle(x) != nil {
				return
			}
		case <-c.gone:
			return
		case <-c.broker.closed:
			return
		}
	}
}

func (c *frontConn) handle(x *exchange) error {
	faults := c.front.noticed(x)
	for _, a := range faults {
		if err := a.before(c, x); err != nil {
			return err
		}
	}
	if x.answer == nil {
		if err := c.own(x); err != nil {
			return err
		}
	}
	for _, a := range faults {
		if err := a.after(c, x); err != nil {
			return err
		}
	}
	if x.answer != nil {
		if _, err := c.client.Write(x.answer); err != nil {
			return errHungUp
		}
	}
	if x.written == nil {
		return nil
	}
	select {
	case x.written <- struct{}{}:
		return nil
	case <-c.broker.closed:
		return errHungUp
	}
}

func (c *frontConn) own(x *exchange) error {
	if x.clientID == frontClient {
		return c.ask(x)
	}
	if own := c.front.owners[x.key]; own != nil {
		return own(x, func() error { return c.ask(x) })
	}
	// kfake would take the process with it.
	if kmsg.RequestForKey(x.key) == nil {
		return errHungUp
	}
	return c.ask(x)
}

// ask passes the request on to kfake and waits for the answer.
func (c *frontConn) ask(x *exchange) error {
	select {
	case c.broker.requests <- x.frame:
	case <-c.broker.closed:
		return errHungUp
	}
	if x.unanswered() {
		return nil
	}
	select {
	case x.answer = <-c.broker.answers:
		x.written = c.broker.written
		return nil
	case <-c.gone:
	case <-c.broker.closed:
	}
	return errHungUp
}

// hangUp closes the connection on both sides. kfake handles what it was given
// before. A client that still sends is let do so until it has read what was
// answered to it: TCP throws answers away if it is closed with unread requests.
func (c *frontConn) hangUp() {
	c.broker.end()
	if c.front.share != nil {
		c.front.share.hungUp(c)
	}
	if half, ok := c.client.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		for open := true; open; {
			select {
			case <-c.frames:
			case <-c.gone:
				open = false
			}
		}
	}
	_ = c.client.Close()
	close(c.done)
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	delete(c.front.conns, c)
}

// pause waits for d, at most until the connection ends on kfake's side, or
// until gone.
func (c *frontConn) pause(d time.Duration, gone <-chan struct{}) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-gone:
	case <-c.broker.closed:
	}
	return errHungUp
}

// hold waits until released, otherwise as pause.
func (c *frontConn) hold(released, gone <-chan struct{}) error {
	select {
	case <-released:
		return nil
	case <-gone:
	case <-c.broker.closed:
	}
	return errHungUp
}

// brokerSide is a connection as kfake sees it. Requests come in as whole
// frames, and kfake writes each answer as one.
type brokerSide struct {
	net.Conn // the client's, for the addresses; kfake sets no deadlines
	requests chan []byte
	answers  chan []byte
	written  chan struct{} // the answer is with the client, or dropped
	rest     []byte        // of the request that kfake reads
	ended    chan struct{} // no more requests
	closed   chan struct{} // by kfake, or with the front
	endOnce  sync.Once
	once     sync.Once
}

func newBrokerSide(client net.Conn) *brokerSide {
	return &brokerSide{
		Conn:     client,
		requests: make(chan []byte),
		answers:  make(chan []byte),
		written:  make(chan struct{}),
		ended:    make(chan struct{}),
		closed:   make(chan struct{}),
	}
}

func (b *brokerSide) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		select {
		case b.rest = <-b.requests:
		case <-b.ended:
			return 0, io.EOF
		case <-b.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Write returns when the answer is on the wire: until then kfake reuses
// nothing of p, and begins no other request of the connection.
func (b *brokerSide) Write(p []byte) (int, error) {
	select {
	case b.answers <- p:
	case <-b.ended:
		return 0, net.ErrClosed
	case <-b.closed:
		return 0, net.ErrClosed
	}
	select {
	case <-b.written:
		return len(p), nil
	case <-b.ended:
	case <-b.closed:
	}
	return 0, net.ErrClosed
}

func (b *brokerSide) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

func (b *brokerSide) end() { b.endOnce.Do(func() { close(b.ended) }) }
