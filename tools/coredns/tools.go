//go:build tools

// Package coredns names the commands that devcluster builds, so that go mod tidy keeps what they need.
package coredns

import (
	_ "github.com/coredns/coredns"
)
