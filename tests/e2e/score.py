"""What a script of these tests found, row by row: a name, and what is wrong, or None."""


def tell(rows, more=""):
    """Prints the rows and the line that counts them; gives the exit code."""
    rows = list(rows)
    for name, fault in rows:
        print(f"{'ok    ' if fault is None else 'FAILED'} {name}{'' if fault is None else f': {fault}'[:6000]}")
    failed = sum(fault is not None for _, fault in rows)
    print(f"{len(rows) - failed} passed, {failed} failed{more}")
    return 1 if failed else 0
