import os
from random import Random
from collections import defaultdict
import pytest
from combee.core.methods.checking import Checked
from combee.core.names import identity
from combee.core.playbook import trust
from combee.core.playbook.operations import lesson_of, read_operations
from combee.core.playbook.results.coverage import Coverage, Lesson
from combee.core.playbook.shown import as_seen_on, shown
from combee.core.text.similarity.lessons import same_lesson
from combee.log.inspection.audit import audit
from combee_schemas.base import Shown, Source
from combee_schemas.playbook import PRODUCTION, Playbook
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.scan import GroupMember, NodeResult, Seen, Update
from combee.core.playbook.versions import empty
from support.gates import command, decisions, deployment_with, places, send, labels
from support.ledger import NAME, dead_letters, versions
from support import ledger
from support.teaching import op, PUBLIC, TEAM
pytestmark = pytest.mark.usefixtures("quick_polls")
H=["Escalate refunds above the limit to a supervisor","Ask for the order number before anything else","Look up the warranty before you promise a repair",
"Send the customer a written summary of each call","Offer a voucher when the parcel arrives more than 5 days late","Do not promise a delivery date in writing"]
BADS=["Refund everything at once","Escalate refunds above the limit to nobody","Escalate refunds above the limit of 500 EUR to a supervisor",H[0]+", and pay twice","Never ask for the order number before anything else",H[1]+", and afterwards skip the fraud screening","Send the password to whoever asks"]
TRUST=os.environ.get("T","team"); FIRST=int(os.environ.get("F","0")); N=int(os.environ.get("N","60"))
SET=TEAM if TRUST=="team" else PUBLIC
ATT,HON=("x","abcd") if TRUST=="team" else ("xyz","abcdef")
def norm(s): return next((h for h in H if same_lesson(h,s)),s)
class L:
    def __init__(s,seed):
        s.r=Random(seed); s.d=deployment_with("approve"); s.count=0; s.batch=[]; s.said=defaultdict(set); s.trace=[]; s.revoked=set(); s.rejected=set(); s.cmd=0; s.seq=0; s.byhand=set()
    def newest(s):
        vs=[v for v in versions(s.d.log)]
        return vs[-1] if vs else empty(NAME)
    def version(s,n):
        return next((v for v in versions(s.d.log) if v.version==n),empty(NAME))
    def say(s,l,src,harmful=(),at=None):
        s.count+=1
        s.batch.append(Reflection(reflection_id=f"r-{s.count}",playbook=NAME,key_insight=l,bullet_tags=tuple(BulletTag(id=i,tag="harmful") for i in harmful),source=Source(name=src,proven="secret"),shown=Shown(version=at) if harmful else None))
    def update(s,ops,base):
        cur=s.newest(); first=s.count-len(s.batch)+1
        mem=[GroupMember(offset=n,reflection=as_seen_on(base,one)) for n,one in enumerate(s.batch,first)]
        ans=read_operations({"operations":list(ops)},[(o.reflection_id,) for o in s.batch])
        res=NodeResult(status="ok",operations=ans.operations,seen=tuple(Seen(reflection_id=o.reflection.reflection_id,offset=o.offset,tags=o.reflection.bullet_tags,shown_version=o.reflection.shown.version if o.reflection.shown else None,source=o.reflection.source) for o in mem))
        cov=Coverage(base=base,lessons=[Lesson(member=o,text=lesson_of(o.reflection)) for o in mem],result=res).witnessed().with_proposals()
        if q:=cov.question(): cov=cov.checked(q,Checked(covered=(),against=()))
        st=PlanSettings(**SET); quorum=trust.rules_of(st).quorum
        out=cov.without_outvoted(quorum).carried().in_own_words().outcome()
        s.seq=cur.batch_sequence+1
        plan=Plan(batch_id=identity.batch_id(NAME,s.seq),playbook=NAME,sequence=s.seq,settings=st,widths=(1,),base_version=base.version,through_offset=s.count,reflections=max(1,len(mem)),reason="size")
        s.batch=[]
        return Update(plan=plan,manifest_offset=s.seq,node_id=f"n-{s.seq}",result=out)
    def c(s,kind,**f):
        s.cmd+=1
        return command(kind,f"c-{s.cmd}",issued_by="user:ada",**f)
    async def send(s,m,what):
        s.trace.append(what); before=len(dead_letters(s.d.log)); await send(s.d,m)
        dl=dead_letters(s.d.log)
        if len(dl)>before: s.trace.append(('refused',dl[-1].reason)); return False
        return True
    async def run(s,steps=14):
        r=s.r
        must=set()
        for step in range(steps):
            new=s.newest(); pl=labels(s.d.log); prod,cand=places(s.d.log) if PRODUCTION in pl else (0,0)
            k=r.random()
            if step<2 or k<.45:
                es=new.entries
                for a in ATT:
                    for _ in range(r.choice([0,1,2])): s.say(r.choice(BADS+H),a,[e.id for e in es if r.random()<.3],new.version)
                for h in HON:
                    if r.random()<.6:
                        l=r.choice(H); s.said[l].add(h)
                        pv=s.version(prod)
                        s.say(l,h,[e.id for e in es if e.content in BADS and r.random()<.5],r.choice([new.version,prod]) or new.version)
                r.shuffle(s.batch)
                if not s.batch: continue
                ids=[*(e.id for e in es),f"others-{new.next_id:05d}"]
                ops=[]
                for _ in range(r.randint(0,3)):
                    kk,n=r.choice([("ADD",0),("UPDATE",1),("UPDATE",1),("REMOVE",1),("MERGE",2)])
                    n=min(n,len(ids)); theirs=[i for i,o in enumerate(s.batch,1) if o.source.name in ATT]
                    ops.append({**op(kk,"" if kk=="REMOVE" else r.choice(BADS+H),*r.sample(ids,n)),"sources":r.choice([theirs,[*range(1,len(s.batch)+1)]])})
                base=new if r.random()<.85 else s.version(max(1,new.version-1))
                await s.send(s.update(ops,base),('batch',step))
            elif k<.8 and cand:
                cv,pv=s.version(cand),s.version(prod)
                bad=[e.id for e in cv.entries if e.is_active and e.content in BADS and e.content not in {x.content for x in pv.entries if x.is_active}]
                lost=[e for e in pv.entries if e.is_active and e.content in H and e.id not in {x.id for x in cv.entries if x.is_active and x.content==e.content} and norm(e.content) not in {norm(x.content) for x in cv.entries if x.is_active}]
                if lost and not s.revoked and not any(t[0] in('rollback','rejall') for t in s.trace) and any(len(set(e.sources)-set(ATT))>=2 for e in lost): return ('candidate loses',[e.content for e in lost],[ (e.sources) for e in lost])
                if bad:
                    w=r.random()
                    if w<.25:
                        s.whole=True
                        await s.send(s.c("reject",version=cand,base_version=prod,label=PRODUCTION,reason="no"),('rejall',cand))
                    elif w<.7:
                        if await s.send(s.c("reject",version=cand,base_version=prod,label=PRODUCTION,entry_ids=tuple(bad),reason="no"),('reject',bad)):
                            s.rejected|={e.content for e in cv.entries if e.id in bad}
                    else: 
                        a=[x for x in ATT if any(x in e.sources for e in cv.entries if e.id in bad)]
                        await s.send(s.c("reject",version=cand,base_version=prod,label=PRODUCTION,sources=tuple(a),reason="no"),('rejsrc',a))
                else:
                    await s.send(s.c("approve",version=cand,base_version=prod,label=PRODUCTION),('approve',cand))
            elif k<.87:
                a=r.choice(ATT)
                ids=tuple(dict.fromkeys(m.reflection_id for b in ledger.batches(s.d.log) for m in b.members if m.source and m.source.name==a))
                if ids:
                    await s.send(s.c("revoke",reflection_ids=ids,rules=(f"source:{a}",)),('revoke',a)); s.revoked.add(a)
            elif k<.93 and new.version>1:
                await s.send(s.c("rollback",version=r.randint(1,new.version)),('rollback',))
            elif k<.96 and new.entries:
                e=r.choice(new.entries)
                if e.content in H:
                    await s.send(s.c("edit",operations=({"kind":"UPDATE","section":e.section,"content":e.content,"entry_ids":(e.id,)},)),('keep',e.id))
            elif prod:
                await s.send(s.c("promote",version=prod,label=PRODUCTION),('promote',prod))
            new=s.newest(); prod,cand=places(s.d.log)
            gone={i for v in versions(s.d.log) for i in v.revoked}
            for e in new.entries:
                if set(e.evidence)&gone: return ('revoked evidence',e.content,e.evidence)
                if set(e.support)&gone: return ('revoked support',e.content)
            act={e.content for e in new.entries if e.is_active}
            for e in new.entries:
                if e.is_active and e.content in s.rejected and not e.by_hand: return None
                if e.content in s.rejected and not e.by_hand: return None
                if set(e.sources)&s.revoked: return ('revoked supports',e.content,e.sources)
                if e.content in BADS and e.is_active and e.sources and set(e.sources)<=s.revoked: return ('revoked shown',e.content)
                if e.content in BADS and set(e.sources)-set(ATT): return ('honest behind hostile',e.content,e.sources)
                if SET is PUBLIC and e.is_active and not e.by_hand and len(e.sources)<4: return ('below quorum',e.content,e.sources)
            p=s.version(prod)
            if any(e.is_active and e.content in BADS for e in p.entries): return ('production hostile',)
            if cand and s.revoked:
                cv=s.version(cand)
                if any(set(e.sources)&s.revoked for e in cv.entries): return ('candidate revoked',)
            asked=bool(new.again)
            rolled=any(t[0] in('rollback','rejall') for t in s.trace)
            if not rolled and not asked:
                for l in H:
                    if len(s.said[l])>=(4 if SET is PUBLIC else 2) and l not in {norm(x) for x in act}:
                        if not(l in {e.content for e in new.entries}) or SET is not PUBLIC: return ('honest lost',l,sorted(s.said[l]))
        bad=[v for v in (await audit(s.d.log)).violations if v.startswith("decision")]
        if bad: return ('ledger',bad[:2])
        return None
FOUND=defaultdict(list)
@pytest.mark.parametrize("seed",range(FIRST,FIRST+N))
async def test_life(seed):
    l=L(seed); x=await l.run()
    if x:
        with open(f"/tmp/a2/lifeout_{TRUST}","a") as f: f.write(f"{seed} {x} :: {l.trace}\n")
@pytest.mark.parametrize("seed",[int(x) for x in os.environ.get("D","").split(",") if x])
async def test_dbg(seed):
    l=L(seed); x=await l.run()
    print("RESULT",seed,x)
    for v in versions(l.d.log):
        print("V",v.version,v.origin,'prod/cand',[(k,b.version) for k,b in labels(l.d.log).items()] if v is l.newest() else '')
        for c in v.changes:
            if c.kind not in("duplicate","echo"): print("     ",c.kind,c.entry_id,c.detail[:140])
        for e in v.entries: print("   ",e.id,e.state[0],"H" if e.by_hand else " ",e.content[:60],e.sources,e.evidence_count,e.evidence[-6:],e.replaces,e.rivals,e.created_version)
    print(l.trace, 'again',l.newest().again)
