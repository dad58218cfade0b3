"""The providers: each module speaks the protocol of one service, or runs a model here."""
