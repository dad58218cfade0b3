"""The providers: each module implements the protocol of one service, or runs a model here."""
