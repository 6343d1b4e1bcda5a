//go:build tools

// Package cnpg names the commands that devcluster builds, so that go mod tidy keeps what they need.
package cnpg

import (
	_ "github.com/cloudnative-pg/cloudnative-pg/cmd/manager"
)
