//! The scan of libraries before they are loaded.

#[cfg(feature = "cli")]
mod abi;
#[cfg(feature = "cli")]
mod command;
mod files;
mod flips;
mod loading;
mod race;
mod trusted;
