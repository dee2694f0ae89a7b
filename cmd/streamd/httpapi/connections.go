package httpapi

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// connections is a listener that bounds the open connections, so that descriptors are
// left for the log and the snapshot. For another caller it closes the connection that
// has been idle longest, so that a probe of /healthz gets past any number of idle ones.
// When none is idle the caller waits for one to end, with one more descriptor. A
// connection is idle while it has no request.
type connections struct {
	net.Listener
	places chan struct{} // one per open connection
	closed chan struct{}
	close  func() error

	mu      sync.Mutex
	waiting bool                       // Accept waits for a place
	idle    list.List                  // net.Conn, the longest idle first
	at      map[net.Conn]*list.Element // entries of idle
}

func newConnections(ln net.Listener, most int) *connections {
	c := &connections{Listener: ln, places: make(chan struct{}, most), closed: make(chan struct{}), at: map[net.Conn]*list.Element{}}
	c.close = sync.OnceValue(func() error {
		close(c.closed)
		return ln.Close()
	})
	return c
}

// Close implements net.Listener.
func (c *connections) Close() error { return c.close() }

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case c.places <- struct{}{}:
	default:
		c.wait(true)
		select {
		case c.places <- struct{}{}:
		case <-c.closed:
			conn.Close()
			return nil, net.ErrClosed
		}
		c.wait(false)
	}
	return &connection{Conn: conn, end: sync.OnceFunc(func() { <-c.places })}, nil
}

// wait notes whether Accept waits for a place, and frees one if it can.
func (c *connections) wait(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = is
	c.makePlace()
}

// makePlace closes the connection that has been idle longest if Accept waits. The caller
// holds mu.
func (c *connections) makePlace() {
	if first := c.idle.Front(); c.waiting && first != nil {
		conn := c.idle.Remove(first).(net.Conn)
		delete(c.at, conn)
		c.waiting = false // it needs one place only
		go conn.Close()   // with TLS this writes
	}
}

// note is the ConnState hook of the server.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.at[conn]; ok {
		c.idle.Remove(element)
		delete(c.at, conn)
	}
	if state == http.StateNew || state == http.StateIdle {
		c.at[conn] = c.idle.PushBack(conn)
		c.makePlace()
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.end()
	return c.Conn.Close()
}
