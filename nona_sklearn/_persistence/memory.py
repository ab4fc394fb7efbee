"""How much memory the objects of a file may take."""

#: Bytes that arrays of objects and texts may take: so many, and so many times those in the file.
#: A file that needs more is forged: it declares texts wider than any in it.
FREE_BYTES, MAX_EXPANSION = 2**26, 256


class MemoryBudget:
    """Bytes that are left for arrays of objects and texts, beside so many stored ones."""

    def __init__(self, n_stored: int = 0) -> None:
        self.left = FREE_BYTES + MAX_EXPANSION * n_stored

    def charge(self, n_values: int, width: int, n_bytes: int = 0, n_stored: int = 0) -> None:
        """Refuse an array of values of some bytes each, of texts of `n_bytes`, if none are left.

        It adds `n_stored` bytes to the file.
        """
        taken = n_values * (64 + width) + 4 * n_bytes  # with Python's objects, approximately
        left = self.left + MAX_EXPANSION * n_stored - taken
        if left < 0:
            raise ValueError(
                f"arrays of texts and objects need more than {MAX_EXPANSION} times the file"
            )
        self.left = left
