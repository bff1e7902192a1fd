#![no_std]
//! preload
