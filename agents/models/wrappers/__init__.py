"""Models that wrap a model: retry, rate limit, fallback, compaction, prices, cassette."""
