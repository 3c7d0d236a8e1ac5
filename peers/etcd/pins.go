//go:build pins

// Imports etcdctl so that go.mod and go.sum list all its dependencies. Never compiled.
package main

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
)
