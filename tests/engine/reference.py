#!/usr/bin/env python3
"""Float64 forward pass of every architecture in the architecture sheet, on tiny random F32 models.

It was written from that sheet alone and agrees with an independent engine (argmax on all or all but one
of 96 positions for each case below, relative rms of the logits 1e-3 or better; mixtral excepted, see the sheet).
Use it as the oracle of a new forward pass: make a model, run the same token ids, compare logits.

    reference.py list
    reference.py make CASE OUT.gguf                the model as a GGUF file (seed 1, F32)
    reference.py logits CASE N OUT.npy             logits [N, V] for the fixed ids toks(N)
    reference.py mtp CASE N OUT.npy                draft logits [N, V] of the MTP block (qwen35, qwen35moe)

Needs numpy.
"""
import struct, sys
import numpy as np

U32,I32,F32,BOOL,STR,ARR=4,5,6,7,8,9
def ps(s):
    b=s.encode() if isinstance(s,str) else s
    return struct.pack('<Q',len(b))+b
def pv(t,v):
    if t==STR:return ps(v)
    if t==ARR:
        et,vals=v
        return struct.pack('<IQ',et,len(vals))+b''.join(pv(et,x) for x in vals)
    return struct.pack({U32:'<I',I32:'<i',F32:'<f',BOOL:'<B'}[t],v)
def write(path,kv,tensors,align=32):
    out=bytearray(b'GGUF'+struct.pack('<IQQ',3,len(tensors),len(kv)))
    for k,(t,v) in kv.items(): out+=ps(k)+struct.pack('<I',t)+pv(t,v)
    off=0;blobs=[]
    for n,a in tensors.items():
        a=np.ascontiguousarray(a,dtype=np.float32)
        dims=a.shape[::-1]
        out+=ps(n)+struct.pack('<I',len(dims))+struct.pack('<%dQ'%len(dims),*dims)+struct.pack('<IQ',0,off)
        b=a.tobytes(); b+=b'\0'*(-len(b)%align); blobs.append(b); off+=len(b)
    out+=b'\0'*(-len(out)%align)
    with open(path,'wb') as f:
        f.write(out)
        for b in blobs:f.write(b)
def byte_vocab(V):
    bs=list(range(33,127))+list(range(161,173))+list(range(174,256)); cs=bs[:]; n=0
    m={}
    for b in range(256):
        if b in bs:m[b]=chr(b)
        else:m[b]=chr(256+n);n+=1
    toks=[m[b] for b in range(256)]+['<t%d>'%i for i in range(V-256)]
    kv={'tokenizer.ggml.model':(STR,'gpt2'),'tokenizer.ggml.pre':(STR,'gpt-2'),
     'tokenizer.ggml.tokens':(ARR,(STR,toks)),'tokenizer.ggml.token_type':(ARR,(I32,[1]*256+[3]*(V-256))),
     'tokenizer.ggml.merges':(ARR,(STR,[m[97]+' '+m[98]])),
     'tokenizer.ggml.bos_token_id':(U32,256),'tokenizer.ggml.eos_token_id':(U32,257)}
    return kv

rs=np.random.RandomState
def rms(x,w,eps): return x/np.sqrt((x*x).mean(-1,keepdims=True)+eps)*w
def silu(x): return x/(1+np.exp(-x))
def gelu(x): return .5*x*(1+np.tanh(np.sqrt(2/np.pi)*(x+0.044715*x**3)))
def sig(x): return 1/(1+np.exp(-x))
def softplus(x): return np.where(x>20,x,np.log1p(np.exp(np.minimum(x,20))))
def lin(W,x): return x@W.astype(np.float64).T
def rope(x,pos,nrot,base,mode,fs=1.0,ff=None,yarn=None):
    # x [T,h,d]
    i=np.arange(nrot//2); f=base**(-2*i/nrot)
    if ff is not None: f=f/ff
    mul=1.0
    if yarn:
        s,norig,bf,bs=yarn; 
        dim=lambda r:nrot*np.log(norig/(2*np.pi*r))/(2*np.log(base))
        low=max(0,np.floor(dim(bf)));high=min(nrot-1,np.ceil(dim(bs)))
        ramp=1-np.clip((i-low)/max(0.001,high-low),0,1)
        th=f*(fs*(1-ramp)+ramp); mul=1+0.1*np.log(s)
    else: th=f*fs
    a=pos[:,None]*th[None]; c=np.cos(a)[:,None,:]*mul; s_=np.sin(a)[:,None,:]*mul
    y=x.copy()
    if mode=='norm': A=2*i;B=2*i+1
    else: A=i;B=i+nrot//2
    y[...,A]=x[...,A]*c-x[...,B]*s_; y[...,B]=x[...,A]*s_+x[...,B]*c
    return y
def attn(q,k,v,scale,win=0,f16=False):
    if f16: k,v=k.astype(np.float16).astype(np.float64),v.astype(np.float16).astype(np.float64)
    T,H,d=q.shape;Hk=k.shape[1];o=np.zeros((T,H,v.shape[2]))
    p=np.arange(T);m=(p[None]<=p[:,None])
    if win: m&=(p[:,None]-p[None])<win
    for h in range(H):
        s=q[:,h]@k[:,h//(H//Hk)].T*scale; s=np.where(m,s,-np.inf); s-=s.max(-1,keepdims=True); e=np.exp(s);e/=e.sum(-1,keepdims=True)
        o[:,h]=e@v[:,h//(H//Hk)]
    return o.reshape(T,-1)
def moe(w,p,x,k,scale=0):
    lg=lin(w[p+'ffn_gate_inp.weight'],x); out=np.zeros_like(x)
    for t in range(len(x)):
        sel=np.argsort(-lg[t],kind='stable')[:k]; e=np.exp(lg[t,sel]-lg[t,sel].max()); e/=e.sum()
        if scale: e*=scale
        for j,ex in enumerate(sel):
            g=lin(w[p+'ffn_gate_exps.weight'][ex],x[t]);u=lin(w[p+'ffn_up_exps.weight'][ex],x[t])
            out[t]+=e[j]*lin(w[p+'ffn_down_exps.weight'][ex],silu(g)*u)
    if p+'ffn_gate_inp_shexp.weight' in w:
        gt=sig(x@w[p+'ffn_gate_inp_shexp.weight'].astype(np.float64))[:,None]
        out+=gt*lin(w[p+'ffn_down_shexp.weight'],silu(lin(w[p+'ffn_gate_shexp.weight'],x))*lin(w[p+'ffn_up_shexp.weight'],x))
    return out
def ffn(w,p,x,act=silu): return lin(w[p+'ffn_down.weight'],act(lin(w[p+'ffn_gate.weight'],x))*lin(w[p+'ffn_up.weight'],x))
def softcap(x,c): return c*np.tanh(x/c) if c else x
def stdattn(w,p,x,pos,c,il=None):
    T=len(x);H,Hk,d=c['H'],c['Hk'],c['d']
    q=lin(w[p+'attn_q.weight'],x);k=lin(w[p+'attn_k.weight'],x);v=lin(w[p+'attn_v.weight'],x)
    if p+'attn_q.bias' in w: q=q+w[p+'attn_q.bias'];k=k+w[p+'attn_k.bias'];v=v+w[p+'attn_v.bias']
    gate=None
    if c.get('gated'):
        q=q.reshape(T,H,2*d); gate=q[:,:,d:].reshape(T,-1); q=q[:,:,:d].copy()
    q=q.reshape(T,H,d);k=k.reshape(T,Hk,d);v=v.reshape(T,Hk,d)
    if p+'attn_q_norm.weight' in w: q=rms(q,w[p+'attn_q_norm.weight'],c['eps']);k=rms(k,w[p+'attn_k_norm.weight'],c['eps'])
    base,fs,win=c['base'],c.get('fs',1.0),0
    if c.get('period') and il%c['period']<c['period']-1: base,fs,win=10000.0,1.0,c['win']
    kw=dict(fs=fs,ff=w['rope_freqs.weight'] if 'rope_freqs.weight' in w else None,yarn=c.get('yarn'))
    q=rope(q,pos,c['nrot'],base,c['rope'],**kw);k=rope(k,pos,c['nrot'],base,c['rope'],**kw)
    o=attn(q,k,v,c.get('scale',1/np.sqrt(d)),win,c.get('f16',False))
    if gate is not None:o=o*sig(gate)
    return lin(w[p+'attn_output.weight'],o)
def deltanet(w,p,x,c):
    T=len(x);nk,nv,dk,dv,K=c['nk'],c['nv'],c['dk'],c['dvh'],c['K'];kd=nk*dk;vd=nv*dv;r=nv//nk
    u=lin(w[p+'attn_qkv.weight'],x);z=lin(w[p+'attn_gate.weight'],x)
    if p+'ssm_ba.weight' in w:
        ba=lin(w[p+'ssm_ba.weight'],x); j=np.arange(nv);g_=j//r
        b=ba[:,2*r*g_+j%r];a=ba[:,2*r*g_+r+j%r]; pair=j//r
    else:
        b=lin(w[p+'ssm_beta.weight'],x);a=lin(w[p+'ssm_alpha.weight'],x); pair=np.arange(nv)%nk
    if c.get('altpair'): pair=np.arange(nv)//r if 'ssm_beta' in ''.join(w) else np.arange(nv)%nk
    cw=w[p+'ssm_conv1d.weight'].astype(np.float64) # [cd,K]
    up=np.vstack([np.zeros((K-1,u.shape[1])),u]); cc=np.zeros_like(u)
    for j in range(K): cc+=cw[:,j]*up[j:j+T]
    cc=silu(cc)
    q=cc[:,:kd].reshape(T,nk,dk);k=cc[:,kd:2*kd].reshape(T,nk,dk);v=cc[:,2*kd:].reshape(T,nv,dv)
    l2=lambda y:y/np.sqrt((y*y).sum(-1,keepdims=True)+1e-6)
    q=l2(q);k=l2(k);beta=sig(b);al=np.exp(w[p+'ssm_a']*softplus(a+w[p+'ssm_dt.bias']))
    S=np.zeros((nv,dk,dv));o=np.zeros((T,nv,dv))
    for t in range(T):
        for h in range(nv):
            S[h]*=al[t,h]; kk=k[t,pair[h]]; rr=v[t,h]-S[h].T@kk; S[h]+=np.outer(kk,beta[t,h]*rr); o[t,h]=S[h].T@q[t,pair[h]]/np.sqrt(dk)
    y=rms(o,w[p+'ssm_norm.weight'],c['eps'])*silu(z.reshape(T,nv,dv))
    return lin(w[p+'ssm_out.weight'],y.reshape(T,-1))
def forward(arch,w,c,toks,ret_h=False):
    pos=np.arange(len(toks)).astype(np.float64)
    h=w['token_embd.weight'][toks].astype(np.float64)
    eps=c['eps']
    if arch=='gemma3': h=h*np.sqrt(c['E'])
    for il in range(c['n_main'] if 'n_main' in c else c['L']):
        p='blk.%d.'%il
        x=rms(h,w[p+'attn_norm.weight'],eps)
        if c.get('interval') and (il+1)%c['interval']: m=deltanet(w,p,x,c)
        else: m=stdattn(w,p,x,pos,c,il)
        if arch=='gemma3': m=rms(m,w[p+'post_attention_norm.weight'],eps)
        h=h+m
        fn=p+('post_attention_norm.weight' if c.get('interval') else 'ffn_norm.weight')
        x=rms(h,w[fn],eps)
        if p+'ffn_gate_inp.weight' in w: f=moe(w,p,x,c['topk'],c.get('wscale',0))
        else: f=ffn(w,p,x,gelu if arch=='gemma3' else silu)
        if arch=='gemma3': f=rms(f,w[p+'post_ffw_norm.weight'],eps)
        h=h+f
    hn=rms(h,w['output_norm.weight'],eps)
    lg=lin(w.get('output.weight',w['token_embd.weight']),hn)
    lg=softcap(lg,c.get('fcap',0))
    return (lg,h,hn) if ret_h else lg
def mtp(arch,w,c,toks,hs,pos):
    p='blk.%d.'%c['n_main'];eps=c['eps']
    e=rms(w['token_embd.weight'][toks].astype(np.float64),w[p+'nextn.enorm.weight'],eps);cc=rms(hs,w[p+'nextn.hnorm.weight'],eps)
    h=lin(w[p+'nextn.eh_proj.weight'],np.concatenate([e,cc],-1))
    h=h+stdattn(w,p,rms(h,w[p+'attn_norm.weight'],eps),pos,c)
    x=rms(h,w[p+'post_attention_norm.weight'],eps)
    h=h+(moe(w,p,x,c['topk']) if p+'ffn_gate_inp.weight' in w else ffn(w,p,x))
    hm=rms(h,w.get(p+'nextn.shared_head_norm.weight',w['output_norm.weight']),eps)
    return lin(w.get('output.weight',w['token_embd.weight']),hm),hm

def build(arch,seed=1,**o):
    r=rs(seed); V=320;E=o.get('E',128);L=o.get('L',4);H=o.get('H',4);Hk=o.get('Hk',2);d=o.get('d',64);F=o.get('F',256)
    N=lambda *s:(r.randn(*s)/np.sqrt(s[-1])).astype(np.float32)
    G=lambda n:(1+.3*r.randn(n)).astype(np.float32)
    w={'token_embd.weight':r.randn(V,E).astype(np.float32)*(0.1 if arch=='gemma3' else 1),'output_norm.weight':G(E)}
    if not o.get('tied'): w['output.weight']=N(V,E)*4
    a=arch+'.'
    kv={'general.architecture':(STR,arch),'general.name':(STR,'t'),a+'block_count':(U32,L),a+'context_length':(U32,512),a+'embedding_length':(U32,E),
      a+'feed_forward_length':(U32,F),a+'attention.head_count':(U32,H),a+'attention.head_count_kv':(U32,Hk),a+'attention.key_length':(U32,d),a+'attention.value_length':(U32,d),
      a+'attention.layer_norm_rms_epsilon':(F32,1e-5),a+'rope.freq_base':(F32,o.get('base',10000.0)),a+'rope.dimension_count':(U32,o.get('nrot',d)),a+'vocab_size':(U32,V)}
    c=dict(E=E,L=L,H=H,Hk=Hk,d=d,eps=1e-5,base=o.get('base',10000.0),nrot=o.get('nrot',d),rope='norm' if arch=='llama' else 'neox')
    hyb=arch in('qwen3next','qwen35','qwen35moe')
    ne=o.get('experts',0)
    if ne:
        kv[a+'expert_count']=(U32,ne);kv[a+'expert_used_count']=(U32,o['topk']);c['topk']=o['topk'];Fe=o['Fe']
        kv[a+'expert_feed_forward_length']=(U32,Fe)
        if arch=='llama': kv[a+'feed_forward_length']=(U32,Fe)
    if hyb:
        nk,nv,dk,K=o.get('nk',2),o.get('nv',4),o.get('dk',128),4
        kv.update({a+'ssm.conv_kernel':(U32,K),a+'ssm.inner_size':(U32,nv*dk),a+'ssm.state_size':(U32,dk),a+'ssm.time_step_rank':(U32,nv),a+'ssm.group_count':(U32,nk),a+'full_attention_interval':(U32,4)})
        if arch!='qwen3next': kv[a+'rope.dimension_sections']=(ARR,(I32,o['sec']))
        c.update(nk=nk,nv=nv,dk=dk,dvh=dk,K=K,interval=4,gated=True)
        nn=o.get('nextn',0);c['n_main']=L-nn
        if nn: kv[a+'nextn_predict_layers']=(U32,nn)
    if arch=='gemma3':
        kv[a+'attention.sliding_window']=(U32,o['win']);c.update(period=6,win=o['win'])
        kv[a+'rope.scaling.type']=(STR,'linear');kv[a+'rope.scaling.factor']=(F32,8.0);c['fs']=1/8
    if o.get('yarn'):
        s,no=o['yarn'];kv[a+'rope.scaling.type']=(STR,'yarn');kv[a+'rope.scaling.factor']=(F32,s);kv[a+'rope.scaling.original_context_length']=(U32,no)
        c['yarn']=(s,no,32.,1.);c['fs']=1/s
    if o.get('ff'): w['rope_freqs.weight']=(1+7*r.rand(d//2)).astype(np.float32)
    for il in range(L):
        p='blk.%d.'%il
        w[p+'attn_norm.weight']=G(E)
        full=not hyb or il>=c['n_main'] or (il+1)%4==0
        if full:
            w[p+'attn_q.weight']=N(H*d*(2 if hyb else 1),E)*2;w[p+'attn_k.weight']=N(Hk*d,E)*2;w[p+'attn_v.weight']=N(Hk*d,E);w[p+'attn_output.weight']=N(E,H*d)
            if arch=='qwen2':
                for n,s in(('q',H*d),('k',Hk*d),('v',Hk*d)): w[p+'attn_%s.bias'%n]=r.randn(s).astype(np.float32)
            if arch in('qwen3','qwen3moe','gemma3') or hyb: w[p+'attn_q_norm.weight']=G(d)*1.5;w[p+'attn_k_norm.weight']=G(d)*1.5
        else:
            kd=nk*dk;vd=nv*dk
            w[p+'attn_qkv.weight']=N(2*kd+vd,E);w[p+'attn_gate.weight']=N(vd,E)
            w[p+'ssm_conv1d.weight']=r.randn(2*kd+vd,K).astype(np.float32)
            w[p+'ssm_dt.bias']=r.randn(nv).astype(np.float32);w[p+'ssm_a']=(-np.exp(r.randn(nv)-1.5)).astype(np.float32)
            if arch=='qwen3next': w[p+'ssm_ba.weight']=N(2*nv,E)
            else: w[p+'ssm_beta.weight']=N(nv,E);w[p+'ssm_alpha.weight']=N(nv,E)
            w[p+'ssm_norm.weight']=G(dk);w[p+'ssm_out.weight']=N(E,vd)
        w[p+('post_attention_norm.weight' if hyb else 'ffn_norm.weight')]=G(E)
        if arch=='gemma3': w[p+'post_attention_norm.weight']=G(E);w[p+'post_ffw_norm.weight']=G(E)
        if ne:
            w[p+'ffn_gate_inp.weight']=N(ne,E)*2
            if o.get('fused'): w[p+'ffn_gate_up_exps.weight']=N(ne,2*Fe,E)*1.5
            else: w[p+'ffn_gate_exps.weight']=N(ne,Fe,E)*1.5;w[p+'ffn_up_exps.weight']=N(ne,Fe,E)*1.5
            w[p+'ffn_down_exps.weight']=N(ne,E,Fe)*1.5
            if hyb:
                Fs=o['Fs'];kv[a+'expert_shared_feed_forward_length']=(U32,Fs)
                w[p+'ffn_gate_inp_shexp.weight']=N(E);w[p+'ffn_gate_shexp.weight']=N(Fs,E)*1.5;w[p+'ffn_up_shexp.weight']=N(Fs,E)*1.5;w[p+'ffn_down_shexp.weight']=N(E,Fs)*1.5
        else:
            w[p+'ffn_gate.weight']=N(F,E)*1.5;w[p+'ffn_up.weight']=N(F,E)*1.5;w[p+'ffn_down.weight']=N(E,F)*1.5
        if hyb and il>=c['n_main']:
            w[p+'nextn.eh_proj.weight']=N(E,2*E)*1.4;w[p+'nextn.enorm.weight']=G(E);w[p+'nextn.hnorm.weight']=G(E);w[p+'nextn.shared_head_norm.weight']=G(E)
    kv.update(byte_vocab(V))
    return kv,w,c
CASES={
 'llama':('llama',dict(E=256,ff=1,tied=1,base=5e5)),
 'llama_yarn':('llama',dict(yarn=(4.0,64))),
 'mixtral':('llama',dict(experts=8,topk=2,Fe=128,L=2)),
 'qwen2':('qwen2',dict(E=256,base=1e6)),
 'qwen2_yarn':('qwen2',dict(E=256,yarn=(4.0,64),base=1e4)),
 'qwen3':('qwen3',dict(d=128,E=256,base=1e6)),
 'qwen3moe':('qwen3moe',dict(experts=16,topk=4,Fe=96,L=3)),
 'gemma3':('gemma3',dict(L=12,win=8,tied=1,base=1e6,d=64)),
 'qwen3next':('qwen3next',dict(E=256,L=4,d=64,nrot=16,experts=16,topk=4,Fe=64,Fs=96,base=1e7,nk=2,nv=4)),
 'qwen35':('qwen35',dict(E=256,L=5,nextn=1,d=64,nrot=16,sec=[3,3,2,0],base=1e7,nk=2,nv=6)),
 'qwen35moe':('qwen35moe',dict(E=256,L=9,nextn=1,d=64,nrot=16,sec=[3,3,2,0],base=1e7,nk=4,nv=8,experts=16,topk=4,Fe=64,Fs=96)),
}
def toks(n,V0=256): return np.array([(i*37+11+i*i%7)%V0 for i in range(n)])
def cmp(name,ref,got):
    e=np.abs(ref-got);print('%-34s max|d| %.2e  rms(d)/rms %.2e  argmax agree %d/%d'%(name,e.max(),np.sqrt((e**2).mean()/(ref**2).mean()),(ref.argmax(-1)==got.argmax(-1)).sum(),len(ref)),flush=True)


def main(argv):
    if argv[1:2] == ['list']:
        print('\n'.join(CASES)); return 0
    if len(argv) < 4 or argv[2] not in CASES:
        print(__doc__); return 2
    arch, o = CASES[argv[2]]
    kv, w, c = build(arch, **o)
    if argv[1] == 'make':
        write(argv[3], kv, w)
    elif argv[1] == 'logits':
        np.save(argv[4], forward(arch, w, c, toks(int(argv[3]))))
    elif argv[1] == 'mtp':
        n = int(argv[3]); t = toks(n + 1)
        _, _, hn = forward(arch, w, c, t[:n], ret_h=True)
        np.save(argv[4], mtp(arch, w, c, t[1:], hn, np.arange(n).astype(np.float64))[0])
    else:
        print(__doc__); return 2
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
