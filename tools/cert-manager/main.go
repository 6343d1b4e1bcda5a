// Command cert-manager-controller runs those controllers of cert-manager that issue and renew certificates of self-signed
// and CA issuers. The command as released is a module of its own below cert-manager's, which the module proxy does not
// serve; the controllers are cert-manager's own, and are unchanged.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	requestsselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const workers = 2

// The defaults of the released command.
var options = controller.ContextOptions{
	KubernetesAPIQPS:   20,
	KubernetesAPIBurst: 50,
	CertificateOptions: controller.CertificateOptions{
		CertificateRequestMinimumBackoffDuration: time.Hour,
		CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
	},
}

var names = []string{
	issuers.ControllerName,
	clusterissuers.ControllerName,
	trigger.ControllerName,
	issuing.ControllerName,
	keymanager.ControllerName,
	requestmanager.ControllerName,
	readiness.ControllerName,
	revisionmanager.ControllerName,
	approver.ControllerName,
	requestsca.CRControllerName,
	requestsselfsigned.CRControllerName,
}

func main() {
	flag.StringVar(&options.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "path of the kubeconfig")
	flag.StringVar(&options.ClusterResourceNamespace, "cluster-resource-namespace", "kube-system", "namespace of the Secrets of ClusterIssuers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run constructs all controllers before the informers that they share are started, and runs them until ctx ends or one of
// them fails.
func run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	constructed := map[string]controller.Interface{}
	for _, name := range names {
		constructed[name], err = controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, one := range constructed {
		running.Go(func() {
			if err := one.Run(workers, ctx); err != nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	running.Wait()
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return nil
}
