// SPDX-License-Identifier: Apache-2.0
//go:build tools

// The programs of a small cluster, whose versions go.mod and go.sum fix.
package fleet

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "sigs.k8s.io/descheduler/cmd/descheduler"
)
