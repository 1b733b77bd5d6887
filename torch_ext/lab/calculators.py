"""The arithmetic of the documents beside the documents' figures; needs no GPU."""

from torch_ext import device


def calculators() -> list[tuple[str, str, str]]:
    """(what, ours, document's)."""
    known = device.KNOWN
    percent = "{:.2f} %".format

    def occupancy(gpu: str, threads: int, registers: int = 16) -> str:
        return percent(100 * device.occupancy(known[gpu], threads, registers).fraction)

    return [
        ("occupancy, A100, 768 threads (S2-14)", occupancy("A100", 768), "75 %"),
        ("occupancy, A100, 700 threads (S0-10)", occupancy("A100", 700), "68.35 % by threads, 68.75 % by warps"),
        (
            "blocks an SM, A100, of 1024, 512, 256, 64 threads (S0-09, S2-13)",
            ", ".join(str(device.occupancy(known["A100"], threads).blocks) for threads in (1024, 512, 256, 64)),
            "2, 4, 8, 32",
        ),
        (
            "registers a thread that leave full occupancy, A100 (S2-15)",
            str(max(r for r in range(1, 256) if device.occupancy(known["A100"], 1024, r).fraction == 1)),
            "32",
        ),
        ("occupancy, A100, 512 threads, 64 registers (S2-16)", occupancy("A100", 512, 64), "50 %"),
        ("occupancy, A100, 512 threads, 31 registers (S2-18)", occupancy("A100", 512, 31), "100 %"),
        ("occupancy, A100, 512 threads, 33 registers (S2-18)", occupancy("A100", 512, 33), "75 %"),
        ("occupancy, H200, 512 threads, 65 registers", occupancy("H200", 512, 65), "-"),
        ("best block and grid, T4 (S1-06)", "{}, {}".format(*device.max_potential_block_size(known["T4"])), "1024, 40"),
        (
            "best block and grid, RTX 4090 (S1-06)",
            "{}, {}".format(*device.max_potential_block_size(known["RTX 4090"])),
            "768, 256",
        ),
        ("best block and grid, H200 (S1-06)", "{}, {}".format(*device.max_potential_block_size(known["H200"])), "-"),
        ("square block of 768 threads (S3-15)", str(device.largest_power_of_four(768)), "256"),
        ("shared memory of two 32 x 32 tiles (S3-11)", f"{device.tile_shared_memory(1024)} B", "8192 B"),
        ("residual addition in fp16, flop a byte (S1-10)", f"{device.pointwise_intensity(1, 2, 1, 2):.3f}", "0.166"),
        ("ReLU in fp16, flop a byte (S1-10)", f"{device.pointwise_intensity(1, 1, 1, 2):.3f}", "0.25"),
        ("4096^3 product, flop an element (S1-11)", f"{device.matmul_intensity(4096, 4096, 4096, 1):.1f}", "2730.7"),
        (
            "4096^3 product without reuse (S0-05)",
            f"{device.naive_matmul_traffic(4096, 4096, 4096) / 2**30:.1f} GiB",
            "512 GB",
        ),
        ("FMAs in flight, M2090 (S4-06)", f"{device.littles_law(20, 32):.0f}", "640"),
        ("KiB in flight, M2090 (S4-11)", f"{device.littles_law(800 / 1.3e9, 177e9) / 1024:.0f}", "106"),
        ("balance, H200, fp32 flop a byte (S4-04)", f"{known['H200'].balance:.1f}", "3.6 (Fermi, fp64)"),
        ("threads a core, A100 (S2-10)", f"{known['A100'].oversubscription:.0f}x", "32x"),
        (
            "occupancy by the sheet's formula, H200, 64 threads (S3-08)",
            f"{device.naive_occupancy(known['H200'], 64):.4f}, meant: {device.occupancy_bound(known['H200'], 64):g}",
            "no figure",
        ),
        (
            "warps that diverge at i < n, n = 1000 and 10^8 + 1 (S2-08)",
            f"{percent(100 * device.boundary_share(1000))}, {100 * device.boundary_share(10**8 + 1):.5f} %",
            "fades",
        ),
    ]
