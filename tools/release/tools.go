//go:build tools

// Package release names the commands that devcluster builds, so that go mod tidy keeps what they need.
package release

import (
	_ "github.com/distribution/distribution/v3/cmd/registry"
	_ "github.com/google/go-containerregistry/cmd/crane"
	_ "github.com/sigstore/cosign/v3/cmd/cosign"
	_ "oras.land/oras/cmd/oras"
)
