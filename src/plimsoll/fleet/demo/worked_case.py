"""The worked case of the quota rules, held exactly by one cluster of the demo fleet. Counted in nodes of 8 GPUs.

With these numbers a buffer of 0 gives line 319 and over 26, and a buffer of 15 % gives line 306 and over 39. No team
is above what it is assigned, so the unscheduled of the teams adds up to `ASSIGNED - ALLOCATED` = 35.
"""

from __future__ import annotations

CLUSTER = "walrus"
SKU = "H100"
TOTAL = 361
IN_SERVICE = 319
ASSIGNED = 345
ALLOCATED = 310
IDLE_MIN = 6
ISLANDS = (128, 128, 105)
TEAM_COUNT = 5

assert sum(ISLANDS) == TOTAL
