"""What a node of each SKU is at the provider, until a recipe says otherwise; and the recipes that are there at once."""

from __future__ import annotations

from plimsoll.lifecycle.recipe import Machine

MACHINES = {
    "A100": Machine("Standard_ND96asr_v4", "Standard NDASv4_A100 Family", 96, 8),
    "H100": Machine("Standard_ND96isr_H100_v5", "standardNDSH100v5Family", 96, 8),
    "H200": Machine("Standard_ND96isr_H200_v5", "standardNDISRH200V5Family", 96, 8),
    "GB200": Machine("Standard_ND128isr_NDR_GB200_v6", "standardNDISRGB200V6NDRFamily", 128, 4),
}
"""VM size, the family that Azure counts quota by as its usages name it (az vm list-usage), cores and GPUs of a node."""

STANDARD = """\
# The way of a cluster into production when every step is a command of this machine. Copy it, put your own commands in,
# and apply it with a higher version: plimsoll cluster recipe apply FILE
# A command prints JSON, one message a line (docs/reference/recipe-file.md); terraform and tofu -json are understood.

recipe: standard
version: 1
asks: the fleet's engineers

# How much quota there is: a CSV file (subscription,region,family,limit,used), azure, or none.
quota: {source: file, file: quota.csv}

steps:
  - step: checkin              # begins when somebody says: plimsoll cluster checkin CLUSTER
    sets: CheckedIn
    run: ["{python}", -m, plimsoll.connect.rehearsal, checkin]
    within: 30m
  - step: bootstrap
    sets: InfrastructureApplied
    needs: [checkin]
    run: ["{python}", -m, plimsoll.connect.rehearsal, bootstrap]
    within: 4h
  - step: scale-sets
    sets: ScaleSetsReady
    needs: [bootstrap]
    run: ["{python}", -m, plimsoll.connect.rehearsal, fill]
    within: 4h
  - step: services
    sets: ServicesDeployed
    needs: [scale-sets]
    run: ["{python}", -m, plimsoll.connect.rehearsal, services]
    within: 2h
  - step: dependencies
    sets: DependenciesApplied
    needs: [bootstrap]
    run: ["{python}", -m, plimsoll.connect.rehearsal, dependencies]
    within: 2h
  - step: burn-in
    sets: HealthGreen
    needs: [services]
    run: ["{python}", -m, plimsoll.connect.rehearsal, burn-in]
    within: 12h

validation: {healthy_share: 0.95, steady_for: 5s, filled_share: 1}

out:
  - step: destroy              # after its nodes are drained
    run: ["{python}", -m, plimsoll.connect.rehearsal, destroy]
    within: 4h
"""

ZERO_BOOTSTRAP = """\
# A cluster whose machines come up ready: the same machine, without the bootstrap and without services to deploy.

recipe: zero-bootstrap
version: 1
asks: the fleet's engineers

quota: {source: file, file: quota.csv}

steps:
  - step: checkin
    sets: CheckedIn
  - step: scale-sets
    sets: ScaleSetsReady
    needs: [checkin]
    run: ["{python}", -m, plimsoll.connect.rehearsal, fill]
    within: 4h
  - step: burn-in
    sets: HealthGreen
    needs: [scale-sets]
    run: ["{python}", -m, plimsoll.connect.rehearsal, burn-in]
    within: 12h

validation: {healthy_share: 0.95, steady_for: 5s, filled_share: 1}
"""

AZURE = """\
# Buildkite runs the terraform applies, the Azure Service Operator makes the scale sets. Names in braces are the
# cluster's own. PLIMSOLL_BUILDKITE_ORG and PLIMSOLL_BUILDKITE_TOKEN say who builds; Azure's SDK finds its own login.

recipe: azure
version: 1
asks: the fleet's engineers

quota: {source: azure, settle: 15m}

steps:
  - step: checkin
    sets: CheckedIn
    build: {pipeline: cluster-checkin, env: {CLUSTER: "{cluster}", REGION: "{region}"}}
    within: 1h
  - step: bootstrap
    sets: InfrastructureApplied
    needs: [checkin]
    build: {pipeline: cluster-bootstrap, env: {CLUSTER: "{cluster}", REGION: "{region}", SKU: "{sku}"}}
    within: 4h
    retry: {class: backoff, attempts: 5, first: 2m, most: 30m}
  - step: scale-sets
    sets: ScaleSetsReady
    needs: [bootstrap]
    scale_sets:
      group: "{cluster}-rg"            # a ResourceGroup object, or the whole id of a group
      subnet: "{cluster}-nodes"        # a VirtualNetworksSubnet object, or the whole id of a subnet
      namespace: clusters
      image: "microsoft-dsvm:ubuntu-hpc:2204:latest"
      password_secret: node-login/password
    within: 6h
  - step: services
    sets: ServicesDeployed
    needs: [scale-sets]
    build: {pipeline: cluster-services, env: {CLUSTER: "{cluster}"}}
    within: 2h
  - step: dependencies
    sets: DependenciesApplied
    needs: [bootstrap]
    build: {pipeline: cluster-dependencies, env: {CLUSTER: "{cluster}"}}
    within: 2h

validation: {healthy_share: 0.95, steady_for: 30m, filled_share: 0.98}

out:
  - step: destroy
    build: {pipeline: cluster-destroy, env: {CLUSTER: "{cluster}"}}
    retry: person
"""

BUILT_IN = {"standard": STANDARD, "zero-bootstrap": ZERO_BOOTSTRAP, "azure": AZURE}
"""Recipes by name; whoever applies one of the same name with a higher version replaces it."""
