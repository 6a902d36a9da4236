"""Servers, relays, volunteers and crews as processes of one machine."""
