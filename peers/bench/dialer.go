package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

const (
	dialTimeout   = 30 * time.Second
	maxReplyBytes = 4096
)

// A dialer opens one tunnel to an endpoint, on its own connection to the frontend.
type dialer func(address string) (net.Conn, error)

func newDialer(mode, uds, proxy string) (dialer, error) {
	switch mode {
	case "socks5":
		return func(address string) (net.Conn, error) { return dialThrough(proxy, address, socksRequest) }, nil
	case "proxy":
		return func(address string) (net.Conn, error) { return dialThrough(proxy, address, connect) }, nil
	case "http-connect":
		return func(address string) (net.Conn, error) { return dialHTTPConnect(uds, address) }, nil
	case "direct":
		return func(string) (net.Conn, error) { return dialDirect(uds, proxy) }, nil
	case "grpc":
		quietClientLog()
		return func(address string) (net.Conn, error) { return dialGRPC(uds, address) }, nil
	}
	return nil, fmt.Errorf("unknown --mode=%s", mode)
}

// The client library logs the end of every stream; the result already counts errors.
func quietClientLog() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

// A nil *net.UnixConn in a net.Conn would not be nil.
func dialUnix(uds string) (net.Conn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: uds, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// A relay may connect a client of an earlier run to this endpoint. So a direct connection starts with random bytes of
// its own process; the answer also shows that the endpoint was reached, as the answer to a dial does.
var pass = func() []byte {
	drawn := make([]byte, 16)
	rand.Read(drawn)
	return drawn
}()

func dialDirect(uds, proxy string) (net.Conn, error) {
	conn, err := dialNear(uds, proxy)
	if err != nil {
		return nil, err
	}
	var answer [1]byte
	if _, err = conn.Write(pass); err == nil {
		_, err = io.ReadFull(conn, answer[:])
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the socket does not lead to the endpoint: %w", err)
	}
	return conn, nil
}

func dialNear(uds, proxy string) (net.Conn, error) {
	if proxy != "" {
		return net.DialTimeout("tcp", proxy, dialTimeout)
	}
	return dialUnix(uds)
}

func passes(conn net.Conn) bool {
	shown := make([]byte, len(pass))
	if _, err := io.ReadFull(conn, shown); err != nil || !bytes.Equal(shown, pass) {
		return false
	}
	_, err := conn.Write(pass[:1])
	return err == nil
}

func dialHTTPConnect(uds, address string) (net.Conn, error) {
	conn, err := dialUnix(uds)
	if err != nil {
		return nil, err
	}
	if err := connect(conn, address); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func connect(conn net.Conn, address string) error {
	if _, err := io.WriteString(conn, "CONNECT "+address+" HTTP/1.1\r\nHost: "+address+"\r\n\r\n"); err != nil {
		return err
	}
	var room [256]byte
	reply := room[:0]
	for {
		n, err := conn.Read(reply[len(reply):cap(reply)])
		reply = reply[:len(reply)+n]
		if end := bytes.Index(reply, []byte("\r\n\r\n")); end >= 0 {
			return judgeReply(reply, end+4)
		}
		if err != nil {
			return fmt.Errorf("no whole CONNECT reply after %d bytes: %w", len(reply), err)
		}
		if len(reply) == cap(reply) {
			if len(reply) >= maxReplyBytes {
				return fmt.Errorf("CONNECT reply head above %d bytes", maxReplyBytes)
			}
			reply = append(make([]byte, 0, 2*cap(reply)), reply...)
		}
	}
}

// dialThrough connects through a proxy on loopback: one TCP connection for each tunnel.
func dialThrough(proxy, address string, ask func(net.Conn, string) error) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", proxy, dialTimeout)
	if err != nil {
		return nil, err
	}
	if err := ask(conn, address); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// socksRequest is RFC 1928 without authentication, for an IPv4 address.
func socksRequest(conn net.Conn, address string) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || !target.Addr().Is4() {
		return fmt.Errorf("%s is not an IPv4 address with a port", address)
	}
	if _, err := conn.Write([]byte{5, 1, 0}); err != nil {
		return err
	}
	var reply [10]byte
	if _, err := io.ReadFull(conn, reply[:2]); err != nil || reply[1] != 0 {
		return fmt.Errorf("no SOCKS5 method: % x, %v", reply[:2], err)
	}
	request := append([]byte{5, 1, 0, 1}, target.Addr().AsSlice()...)
	if _, err := conn.Write(append(request, byte(target.Port()>>8), byte(target.Port()))); err != nil {
		return err
	}
	// Every proxy here answers with an IPv4 address, so the reply's length is known.
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return fmt.Errorf("no SOCKS5 reply: %w", err)
	}
	if reply[1] != 0 || reply[3] != 1 {
		return fmt.Errorf("SOCKS5 refused: % x", reply)
	}
	return nil
}

func judgeReply(reply []byte, headLength int) error {
	statusLine, _, _ := bytes.Cut(reply, []byte("\r\n"))
	if !bytes.HasPrefix(statusLine, []byte("HTTP/1.1 200")) && !bytes.HasPrefix(statusLine, []byte("HTTP/1.0 200")) {
		return fmt.Errorf("CONNECT refused: %s", statusLine)
	}
	// Our endpoints never send first, so these bytes are an error.
	if len(reply) != headLength {
		return fmt.Errorf("%d bytes after the CONNECT reply", len(reply)-headLength)
	}
	return nil
}

// dialGRPC opens one gRPC connection per tunnel with kube-apiserver's options.
func dialGRPC(uds, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), "passthrough:///"+uds,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", uds)
		}),
		grpc.WithBlock(),
		grpc.WithReturnConnectionError(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}
