//! Layers for candle models.
