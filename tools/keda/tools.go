//go:build tools

// Package keda names the programs that devcluster builds, so that go mod tidy keeps what they need.
package keda

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
