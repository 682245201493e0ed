"""Gives the kernel that starts with this folder on its path a second device, on which fedlib trains by default."""

import emulated_device

emulated_device.use()
