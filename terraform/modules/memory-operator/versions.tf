terraform {
  required_version = ">= 1.5"

  required_providers {
    # The arguments used here have been the same from 1.3 to 3.1.
    helm = {
      source  = "hashicorp/helm"
      version = ">= 1.3.2"
    }
    kubectl = {
      source  = "gavinbunney/kubectl"
      version = ">= 1.14"
    }
  }
}
