"""One broker that keeps an eye on all: samples, lost members, alerts and how they are told."""
