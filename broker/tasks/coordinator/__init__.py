"""The broker that watches all: samples, lost members, alerts and their delivery."""
