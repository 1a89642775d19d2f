"""Numbers: dtypes, comparison within a tolerance, stored reference sets."""
