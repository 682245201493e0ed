"""Every chapter keeps the contract and runs from a clean kernel."""
