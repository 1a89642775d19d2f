"""Why a culprit is wrong: families of hypotheses, one file each; the search that tries them; the repair of a model."""
