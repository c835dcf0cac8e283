"""The policy that is in force until somebody applies another. `plimsoll health policy show` prints it."""

from __future__ import annotations

DEFAULT_POLICY = """\
# What signals lead to. Copy it, change it, try it with `plimsoll health policy check FILE`,
# and put it in force with `plimsoll health policy apply FILE`.

policy: default

# XID codes: operators disagree, so this is a choice and not a constant. Two ready profiles; name one, or write yours.
xid_profile: fail-listed
xid_profiles:
  fail-listed:              # one operator fails a node on these codes and on no other
    quarantine: [48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120]
    else: nothing
  fail-unless-listed:       # another one takes every code for critical but these
    nothing: [13, 31, 43, 45, 63, 68, 92, 109]
    else: quarantine

# Everything else. The first rule whose signal and name match decides; of rules with `at_least` each is a line of its
# own that a reading is above or below. do: nothing < degrade < drain < quarantine < repair.
#   after:    only when so many came within so long (debounce)
#   lasting:  only when it went on for so long
#   owner:    whose move it is then (ours | provider);  returns_in: when the node is expected back
#   planned:  somebody wants it out: it counts as planned work, not as a fault
rules:
  - {signal: heartbeat, do: quarantine, lasting: 5m, returns_in: 1d}
  - {signal: check, name: "advice-*", do: nothing}
  - {signal: check, do: quarantine, after: {count: 2, within: 30m}, returns_in: 1d}
  - {signal: ecc, name: row-remap-failure, at_least: 1, do: repair, owner: provider, returns_in: 3d}
  - {signal: ecc, name: double-bit, at_least: 1, do: drain, returns_in: 1d}
  - {signal: ecc, do: degrade, at_least: 1}
  - {signal: thermal, at_least: 100, do: quarantine, after: {count: 2, within: 10m}, returns_in: 1d}
  - {signal: thermal, at_least: 90, do: degrade, after: {count: 3, within: 30m}}
  - {signal: provider, name: "maintenance*", do: drain, owner: provider, planned: true, returns_in: 1d}
  - {signal: provider, name: "advice*", do: nothing}
  - {signal: provider, name: "redeploy*", do: drain, owner: provider, planned: true, returns_in: 1d}
  - {signal: provider, name: "hardware*", do: repair, owner: provider, returns_in: 2d}
  - {signal: provider, name: "host-down*", do: repair, owner: provider, returns_in: 2d}
  - {signal: provider, do: degrade}
  - {signal: scheduler, name: down, do: quarantine, lasting: 10m, returns_in: 1d}
  - {signal: scheduler, name: not-ready, do: quarantine, lasting: 10m, returns_in: 1d}
  - {signal: scheduler, do: degrade}

# A problem that keeps coming and going, each time too short to count.
flapping: {times: 4, within: 6h, do: quarantine}
# A node that keeps coming back broken: so many unplanned exits from service within so long.
lemon: {exits: 4, within: 30d, do: repair}

# A degraded node whose problem only happens (an XID) is healthy again after so long without it.
degraded_for: 24h
# An automated hold ends when its problem was gone for so long; then the node is validated.
settle: 10m
# How long a node may drain before it is quarantined with work on it.
drain_at_most: 24h
# A feed that says nothing for so long makes its nodes `unknown`.
silence: 15m

# Automation takes at most this share of the nodes out in this time (but always `at_least` so many), then asks a person.
breakers:
  cluster: {share: 0.10, at_least: 4, within: 1h}
  fleet: {share: 0.02, at_least: 20, within: 1h}

# The way back into service: each check must pass after the node began to validate.
#   for: no bad signal for so long.  by: manual: somebody ticks it (plimsoll health tick CHECK NODE).  Others may be:
#   - {check: diag, run: [ssh, "{node}", dcgmi, diag, -r, "2"], timeout: 10m}            # exit code 0 passes
#   - {check: nccl, query: 'min(nccl_bandwidth{node="{node}"})', at_least: 350}
validation:
  - {check: quiet, for: 10m}
  - {check: accepted, by: manual}

# What to ask Prometheus. node_label names the node (a port at its end is cut off). An xid's value is its code; for
# heartbeat and check 1 is good and 0 is bad; ecc and thermal readings are compared with the rules above.
prometheus:
  - signal: xid
    node_label: Hostname
    query: >-
      max by (Hostname) (DCGM_FI_DEV_XID_ERRORS > 0 and (changes(DCGM_FI_DEV_XID_ERRORS[5m]) > 0
      or (DCGM_FI_DEV_XID_ERRORS unless DCGM_FI_DEV_XID_ERRORS offset 5m)))
  - {signal: ecc, name: double-bit, node_label: Hostname, query: max by (Hostname) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL)}
  - signal: ecc
    name: row-remap-failure
    node_label: Hostname
    query: max by (Hostname) (DCGM_FI_DEV_ROW_REMAP_FAILURE)
  - {signal: thermal, name: gpu, node_label: Hostname, query: max by (Hostname) (DCGM_FI_DEV_GPU_TEMP)}
  - {signal: heartbeat, name: node-exporter, node_label: instance, query: 'up{job="node"}'}
  - signal: check
    name: root-writable
    node_label: instance
    query: 1 - max by (instance) (node_filesystem_readonly{mountpoint="/"})
"""
