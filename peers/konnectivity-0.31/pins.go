//go:build pins

// Package pins imports the upstream programs so that go.mod and go.sum list
// all their dependencies. It is never compiled.
package pins

import (
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"
)
