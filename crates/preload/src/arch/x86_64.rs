//! x86-64.

use core::arch::{asm, global_asm, naked_asm};

use crate::tls::Block;

// The calling thread's block: initial-exec, so that finding it is two instructions and never a call into the C library. `fs:0`
// holds its own address (the thread control block begins there).
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
            "mov {p}, qword ptr fs:0",
            "add {p}, qword ptr [rip + manyway_block@gottpoff]",
            p = out(reg) p,
            options(pure, nomem, nostack),
        );
    }
    p
}

/// The stack pointer: what lies above belongs to the callers.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let p;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) p, options(nomem, nostack, preserves_flags)) };
    p
}

/// Ends the process by SIGILL, without the C library.
pub(crate) fn trap() -> ! {
    // SAFETY: an undefined instruction; nothing follows.
    unsafe { asm!("ud2", options(noreturn, nomem, nostack)) }
}

/// The address of a symbol of the program that may be missing (null then).
macro_rules! weak {
    ($name:literal) => {{
        let p: *const ();
        // SAFETY: loads an address from the global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) p,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        p
    }};
}

/// Defines the exported function `$name`: the real one (number `$index` of `real::NAMES`), then `$after(result, arg1, arg2, arg3)`,
/// then the real one's result. In assembly, because a thread may be cancelled in the real one: the unwinder then passes this
/// frame, which holds nothing.
macro_rules! call_then {
    ($(#[$doc:meta])* $name:ident, $index:expr, $after:path) => {
        $crate::arch::call_and! { $(#[$doc])* $name, $index, $after, "mov rax, [rsp + 24]" }
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
                "sub rsp, 40",
                ".cfi_adjust_cfa_offset 40",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov rax, [rip + {table} + 8 * {index}]",
                "test rax, rax",
                "jne 2f",
                "mov eax, {index}",
                "call {resolve}",
                "2:",
                "call rax",
                "mov [rsp + 24], rax",
                "mov rdi, rax",
                "mov rsi, [rsp]",
                "mov rdx, [rsp + 8]",
                "mov rcx, [rsp + 16]",
                "call {after}",
                $result,
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
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
/// real one (number `$index` of `real::NAMES`), which sees its caller's frame and return address as if nothing were in between.
macro_rules! jump_after {
    ($(#[$doc:meta])* $name:ident, $index:expr, $before:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call {before}",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "mov rsi, rax",
                "mov rax, [rip + {table} + 8 * {index}]",
                "test rax, rax",
                "jne 2f",
                "mov eax, {index}",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {resolve}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "2:",
                "jmp rax",
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
                "sub rsp, 72",
                ".cfi_adjust_cfa_offset 72",
                // The list's first five, and behind them where all are: a `Variadic`.
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov [rsp + 40], rsp",
                "mov qword ptr [rsp + 48], 5",
                "lea rax, [rsp + 80]",
                "mov [rsp + 56], rax",
                "lea rsi, [rsp + 40]",
                "call {list}",
                "add rsp, 72",
                ".cfi_adjust_cfa_offset -72",
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

/// Finds the real function number `rax`, keeping all argument registers; its address in `rax`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resolve() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 56",
        "mov rdi, rax",
        "call {resolve}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_endproc",
        resolve = sym crate::real::resolve,
    )
}

/// syscall(2). Those in `syscall::INTERCEPTED` go to [`crate::syscall::intercepted`] with all registers and the stack as they are;
/// the others are made exactly as the C library makes them.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "cmp edi, {bits}",
        "jae 2f",
        "bt dword ptr [rip + {bitmap}], edi",
        "jc {intercepted}",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "neg eax",
        "mov edi, eax",
        "jmp {fail}",
        ".cfi_endproc",
        bits = const crate::syscall::BITS,
        bitmap = sym crate::syscall::INTERCEPTED,
        intercepted = sym crate::syscall::intercepted,
        fail = sym crate::errno::fail_long,
    )
}

// What a signal handler returns to. Debuggers and unwinders know the frame of a signal by these very bytes (`mov rax, 15; syscall`),
// if no unwind table covers the byte before them: hence the `nop`, which belongs to no function.
global_asm!(
    ".pushsection .text.manyway_restorer,\"ax\",@progbits",
    ".balign 16",
    "nop",
    ".globl manyway_restorer",
    ".hidden manyway_restorer",
    ".type manyway_restorer,@function",
    "manyway_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00",
    ".byte 0x0f, 0x05",
    ".size manyway_restorer, . - manyway_restorer",
    ".popsection",
);

unsafe extern "C" {
    fn manyway_restorer();
}

/// SA_RESTORER with the address that goes with it.
pub(crate) fn restorer() -> (u64, usize) {
    (0x0400_0000, manyway_restorer as *const () as usize)
}

/// Where `uc_sigmask` lies in a `ucontext_t`.
pub(crate) const SIGMASK_IN_CONTEXT: usize = 296;
