"""Who may do what: roles of people, services and groups, tokens, sessions. It knows no other capability."""
