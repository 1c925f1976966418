import sys, time, torch
from benchmarks import layouts as L
names=sys.argv[1:] or "3x3_s1_64_64_28 3x3_s2_64_128_28 3x3_s1_128_128_14 3x3_s1_512_512_7 5x5_s1_32_64_14 3x3_s2_256_256_14 3x3_s1_20_20_28 5x5_s2_16_32_28 groups2_64_128_14 groups8_64_64_28 1x1_s2_64_128_56".split()
def cpu(run,n):
    torch.netcl.synchronize(); t=time.process_time()
    for _ in range(n): run()
    torch.netcl.synchronize(); return (time.process_time()-t)/n
for s in L.shapes():
    if s.name in names:
        for b in (1,8):
            res=[]
            for f in (torch.contiguous_format, torch.channels_last):
                r=s.run("grad_weight",b,f); r(); c=cpu(r,2); n=max(2,int(0.02/c)); res.append(min(cpu(r,n) for _ in range(6)))
            a,c=res
            print(f"{s.name} b{b} {a*1e6:.0f} {c*1e6:.0f} {c/a:.2f}",flush=True)
