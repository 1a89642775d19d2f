"""The smallest model, and the smallest inputs, that still fail.

`failing`: what is made smaller. `conditions`, `program`: what a failure is. `edits`: what can be made smaller, with the
passes that exist. `shrinking`: the order, the answers kept. `folder`: what is handed over.
"""
