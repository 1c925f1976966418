"""Prints what autocast and GradScaler do on each device present, as tables: `python test/amp_report.py`.

Policies: every entry of the lists in the installed ATen/autocast_mode.h goes through the checks of
test_autocast.py. Launches: kernels that `scaler.step(optimizer)` and `scaler.update()` enqueue for 100 parameters,
and how often the host waits, in a step after the first. Exit status 1 if an entry failed.
"""

import sys

import test_autocast
import torch

PARAMETERS = 100
OPTIMIZERS = {
    "AdamW": lambda p, **kw: torch.optim.AdamW(p, lr=1e-3, **kw),
    "SGD with momentum": lambda p, **kw: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **kw),
    "Adagrad": lambda p, **kw: torch.optim.Adagrad(p, lr=1e-3, **kw),
}
KINDS = {"one by one": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def policies():
    """Rows of policy, dtype, entries in the list, checked, failed; and what failed."""
    case = test_autocast.TestPolicies("test_lists_were_parsed")
    rows, errors = [], []
    for policy, make in test_autocast.EXAMPLES.items():
        for low in test_autocast.LOWER:
            examples = {e: a for e, a in make(low).items() if e in test_autocast.LISTS[policy]}
            failed = 0
            for entry, args in examples.items():
                try:
                    case.check_entry(policy, entry, args, low)
                    case.check_regions(policy, entry, args, low)
                    case.check_other_arguments(policy, entry, args, low)
                except Exception as error:  # noqa: BLE001 - counted and shown
                    failed += 1
                    errors.append(f"{policy} {low} {entry}: {str(error).splitlines()[0]}")
            rows.append((policy, str(low)[6:], len(test_autocast.LISTS[policy]), len(examples), failed))
    return rows, errors


def launches(optimizer, kind):
    """Kernels launched and host waits in one scaled step."""
    params = [torch.nn.Parameter(torch.ones(10 + n, device="netcl")) for n in range(PARAMETERS)]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = OPTIMIZERS[optimizer](params, **KINDS[kind])
    scaler = torch.amp.GradScaler("netcl")
    scaler.scale(torch.ones((), device="netcl"))
    for _ in range(3):  # the first one creates the state, the second may compile
        before = torch.netcl.launch_count(), torch.netcl.host_sync_count()
        scaler.step(optimizer)
        scaler.update()
        after = torch.netcl.launch_count(), torch.netcl.host_sync_count()
    return after[0] - before[0], after[1] - before[1]


def launch_rows():
    """Rows of optimizer, and "launches, waits" for each kind."""
    return [(name, *(launches(name, kind) for kind in KINDS)) for name in OPTIMIZERS]


def main():
    """Prints the tables; returns the exit status."""
    failures = 0
    for index in range(torch.netcl.device_count()):
        with torch.netcl.device(index):
            p = torch.netcl.get_device_properties()
            print(f"{p.platform_name}, {p.name}\n")
            print("| policy | dtype | entries | checked | failed |\n|---|---|---|---|---|")
            rows, errors = policies()
            for row in rows:
                print("| " + " | ".join(map(str, row)) + " |")
            print(*errors, sep="\n")
            failures += len(errors)
            print(f"| optimizer | {' | '.join(KINDS)} |\n|---|---|---|---|")
            for name, *cells in launch_rows():
                print(f"| {name} | " + " | ".join(f"{launched}, {waits}" for launched, waits in cells) + " |")
            print()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
