"""What the other frameworks need: a file of requirements for each, and the command that installs them."""
