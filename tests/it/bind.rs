//! What a binding refuses when it is made, and what a bound kernel refuses before it is called.

mod calls;
mod declarations;
mod parity;
