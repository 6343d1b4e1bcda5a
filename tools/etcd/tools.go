//go:build tools

// Package etcd names the commands that devcluster builds, so that go mod tidy keeps what they need.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)
