// Command etcd is upstream's etcd. Upstream's main package builds only inside
// its repository, so this one calls the same entry point.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
