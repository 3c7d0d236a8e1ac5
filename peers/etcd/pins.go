//go:build pins

// Names etcdctl so that go.mod and go.sum hold all that it needs. Never compiled.
package main

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
)
