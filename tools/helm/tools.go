//go:build tools

// Package helm names the commands that devcluster builds, so that go mod tidy keeps what they need.
package helm

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
