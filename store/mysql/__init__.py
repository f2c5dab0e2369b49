"""The store on MySQL or MariaDB: one server, or a ring of two masters with replicas."""
