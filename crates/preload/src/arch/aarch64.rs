//! aarch64. The comments that say why are in the x86-64 file.

use core::arch::{asm, global_asm, naked_asm};

use crate::tls::Block;

global_asm!(
    ".pushsection .tbss.manyway_block,\"awT\",@nobits",
    ".globl manyway_block",
    ".hidden manyway_block",
    ".type manyway_block,@object",
    ".size manyway_block,{size}",
    ".balign {align}",
    "manyway_block:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Block>(),
    align = const align_of::<Block>(),
);

/// The calling thread's block, all zero at first.
#[inline(always)]
pub(crate) fn thread_block() -> *const Block {
    let p;
    // SAFETY: reads the thread pointer and an offset that the dynamic linker stored; both are constant in a thread.
    unsafe {
        asm!(
            "mrs {p}, tpidr_el0",
            "adrp {t}, :gottprel:manyway_block",
            "ldr {t}, [{t}, :gottprel_lo12:manyway_block]",
            "add {p}, {p}, {t}",
            p = out(reg) p,
            t = out(reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    p
}

/// The stack pointer: what lies above belongs to the callers.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let p;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) p, options(nomem, nostack, preserves_flags)) };
    p
}

/// Ends the process by SIGILL, without the C library.
pub(crate) fn trap() -> ! {
    // SAFETY: an undefined instruction; nothing follows.
    unsafe { asm!("udf #0", options(noreturn, nomem, nostack)) }
}

/// The address of a symbol of the program that may be missing (null then).
macro_rules! weak {
    ($name:literal) => {{
        let p: *const ();
        // SAFETY: loads an address from the global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) p,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        p
    }};
}

/// Defines the exported function `$name`: the real one, then `$after(result, arg1, arg2, arg3)`, then the real one's result.
macro_rules! call_then {
    ($(#[$doc:meta])* $name:ident, $index:expr, $after:path) => {
        $crate::arch::call_and! { $(#[$doc])* $name, $index, $after, "ldr x0, [sp, 40]" }
    };
}

/// The same, but the result is what `$after` returns.
macro_rules! call_answered {
    ($(#[$doc:meta])* $name:ident, $index:expr, $after:path) => {
        $crate::arch::call_and! { $(#[$doc])* $name, $index, $after, "" }
    };
}

/// What the two have in common; `$result` is the instruction that fetches the result.
macro_rules! call_and {
    ($(#[$doc:meta])* $name:ident, $index:expr, $after:path, $result:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, -64]!",
                ".cfi_def_cfa_offset 64",
                ".cfi_offset x29, -64",
                ".cfi_offset x30, -56",
                "mov x29, sp",
                "stp x0, x1, [sp, 16]",
                "str x2, [sp, 32]",
                "adrp x16, {table}",
                "add x16, x16, :lo12:{table}",
                "ldr x16, [x16, 8 * {index}]",
                "cbnz x16, 2f",
                "mov x16, {index}",
                "bl {resolve}",
                "2:",
                "blr x16",
                "str x0, [sp, 40]",
                "ldp x1, x2, [sp, 16]",
                "ldr x3, [sp, 32]",
                "bl {after}",
                $result,
                "ldp x29, x30, [sp], 64",
                ".cfi_restore x29",
                ".cfi_restore x30",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                table = sym crate::real::TABLE,
                index = const $index,
                resolve = sym $crate::arch::resolve,
                after = sym $after,
            )
        }
    };
}

/// Defines the exported function `$name`: `$before(arg1, arg2)`, whose result becomes the second argument, then a jump to the
/// real one.
macro_rules! jump_after {
    ($(#[$doc:meta])* $name:ident, $index:expr, $before:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, -32]!",
                ".cfi_def_cfa_offset 32",
                ".cfi_offset x29, -32",
                ".cfi_offset x30, -24",
                "str x0, [sp, 16]",
                "bl {before}",
                "mov x1, x0",
                "ldr x0, [sp, 16]",
                "adrp x16, {table}",
                "add x16, x16, :lo12:{table}",
                "ldr x16, [x16, 8 * {index}]",
                "cbnz x16, 2f",
                "mov x16, {index}",
                "bl {resolve}",
                "2:",
                "ldp x29, x30, [sp], 32",
                ".cfi_restore x29",
                ".cfi_restore x30",
                ".cfi_def_cfa_offset 0",
                "br x16",
                ".cfi_endproc",
                table = sym crate::real::TABLE,
                index = const $index,
                resolve = sym $crate::arch::resolve,
                before = sym $before,
            )
        }
    };
}

/// Defines the exported variadic function `$name`, whose arguments are all pointers: `$list(first, &Variadic)`.
macro_rules! variadic {
    ($(#[$doc:meta])* $name:ident, $list:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, -96]!",
                ".cfi_def_cfa_offset 96",
                ".cfi_offset x29, -96",
                ".cfi_offset x30, -88",
                "mov x29, sp",
                // The list's first seven, and behind them where all are: a `Variadic`.
                "stp x1, x2, [sp, 16]",
                "stp x3, x4, [sp, 32]",
                "stp x5, x6, [sp, 48]",
                "str x7, [sp, 64]",
                "add x9, sp, 16",
                "mov x10, 7",
                "stp x9, x10, [sp, 72]",
                "add x9, sp, 96",
                "str x9, [sp, 88]",
                "add x1, sp, 72",
                "bl {list}",
                "ldp x29, x30, [sp], 96",
                ".cfi_restore x29",
                ".cfi_restore x30",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                list = sym $list,
            )
        }
    };
}

/// In a function: `$routine` is its personality routine, which the unwinder calls for its frame. It is a word in the unwind table and no
/// instruction. (0x1b: the word is the distance to the routine, in four bytes.)
macro_rules! when_cancelled {
    ($routine:path) => {
        // SAFETY: nothing is executed; the routine has the signature of a personality routine and needs no table of its own.
        unsafe {
            core::arch::asm!(".cfi_personality 0x1b, {}", sym $routine, options(nomem, nostack, preserves_flags));
        }
    };
}

pub(crate) use {call_and, call_answered, call_then, jump_after, variadic, weak, when_cancelled};

/// Finds the real function number `x16`, keeping all argument registers; its address in `x16`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resolve() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, -80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset x29, -80",
        ".cfi_offset x30, -72",
        "stp x0, x1, [sp, 16]",
        "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]",
        "stp x6, x7, [sp, 64]",
        "mov x0, x16",
        "bl {resolve}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]",
        "ldp x2, x3, [sp, 32]",
        "ldp x4, x5, [sp, 48]",
        "ldp x6, x7, [sp, 64]",
        "ldp x29, x30, [sp], 80",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
        resolve = sym crate::real::resolve,
    )
}

/// syscall(2). Those in `syscall::INTERCEPTED` go to [`crate::syscall::intercepted`] with all registers as they are; the others
/// are made exactly as the C library makes them.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "mov w8, w0",
        "cmp w8, {bits}",
        "b.hs 2f",
        "lsr w9, w8, 6",
        "adrp x10, {bitmap}",
        "add x10, x10, :lo12:{bitmap}",
        "ldr x9, [x10, x9, lsl 3]",
        "lsr x9, x9, x8",
        "tbz x9, 0, 2f",
        "b {intercepted}",
        "2:",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc 0",
        "cmn x0, 4095",
        "b.hs 3f",
        "ret",
        "3:",
        "neg w0, w0",
        "b {fail}",
        ".cfi_endproc",
        bits = const crate::syscall::BITS,
        bitmap = sym crate::syscall::INTERCEPTED,
        intercepted = sym crate::syscall::intercepted,
        fail = sym crate::errno::fail_long,
    )
}

/// SA_RESTORER with the address that goes with it: none, the kernel's own is in the vDSO.
pub(crate) fn restorer() -> (u64, usize) {
    (0, 0)
}

/// Where `uc_sigmask` lies in a `ucontext_t`.
pub(crate) const SIGMASK_IN_CONTEXT: usize = 40;
