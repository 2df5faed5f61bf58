package robust

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// slowWire listens as a broker on a network on which bytes to the broker are on
// their way for a while. What is on its way when the sender dies is lost, as on
// a real network and unlike on the loopback interface, where the kernel has
// delivered a request before its sender can be killed.
func slowWire(delay time.Duration) func(network, address string) (net.Listener, error) {
	return func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		return &wireListener{l, delay}, nil
	}
}

type wireListener struct {
	net.Listener
	delay time.Duration
}

// Accept implements net.Listener.
func (l *wireListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, delay: l.delay, wake: make(chan struct{}, 1), cut: make(chan struct{})}
	go c.carry()
	return c, nil
}

// wireConn is the broker's end of a connection.
type wireConn struct {
	net.Conn
	delay time.Duration
	wake  chan struct{} // something was put on its way
	cut   chan struct{} // closed when the sender is gone

	mu    sync.Mutex
	onWay []parcel
}

type parcel struct {
	data []byte
	due  time.Time
}

// carry puts what arrives on its way, until the sender is gone.
func (c *wireConn) carry() {
	defer close(c.cut)
	for {
		buf := make([]byte, 64<<10)
		n, err := c.Conn.Read(buf)
		if n > 0 {
			c.mu.Lock()
			c.onWay = append(c.onWay, parcel{buf[:n], time.Now().Add(c.delay)})
			c.mu.Unlock()
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// Read returns what has arrived in full time.
func (c *wireConn) Read(b []byte) (int, error) {
	for {
		wait, n := c.take(b)
		if n > 0 {
			return n, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.cut:
			timer.Stop()
			return 0, io.EOF
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take fills b from what is due, or says how long to wait.
func (c *wireConn) take(b []byte) (wait time.Duration, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.onWay) == 0 {
		return time.Hour, 0
	}
	first := &c.onWay[0]
	if wait := time.Until(first.due); wait > 0 {
		return wait, 0
	}
	n = copy(b, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		c.onWay = c.onWay[1:]
	}
	return 0, n
}

// SetReadDeadline is not supported: the broker sets none.
func (c *wireConn) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }
